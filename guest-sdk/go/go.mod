module twice.dev/node

go 1.24
