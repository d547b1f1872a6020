module twice.dev/nodes/refund

go 1.24

require twice.dev/node v0.0.0

replace twice.dev/node => ../../../../guest-sdk/go
