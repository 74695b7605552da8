@problemName p
@dimensions 3
@classLabel true a b
@data
1,2:3,4:a
