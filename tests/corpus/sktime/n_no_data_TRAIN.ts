@problemName p
@classLabel true a
1,2:a
