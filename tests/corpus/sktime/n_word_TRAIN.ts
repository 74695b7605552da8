@problemName p
@univariate true
@classLabel true a
@data
1,x,2:a
