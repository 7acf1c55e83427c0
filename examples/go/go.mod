module example.org/classify

go 1.19
