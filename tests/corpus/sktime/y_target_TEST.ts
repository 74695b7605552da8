@problemName one
@univariate true
@targetlabel true
@equalLength true
@seriesLength 3
@data
1,2,3:0.25
4,5,6:?
