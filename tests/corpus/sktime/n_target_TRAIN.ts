@problemName p
@univariate true
@targetLabel true
@data
1,2:3,4
