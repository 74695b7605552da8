#two channels, steps differ
@problemName Two
@timeStamps false
@missing false
@univariate false
@dimensions 2
@equalLength false
@classLabel true 1 up
@data
1,2,3:4.5,5,-6e1:1
7,?:8,NaN:up
