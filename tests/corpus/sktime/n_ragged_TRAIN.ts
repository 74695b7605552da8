@problemName p
@classLabel true a
@data
1,2:3:a
