@problemName p
@classLabel true a b
@data
1,2:a
1,2:c
