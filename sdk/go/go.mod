module github.com/anteroom/anteroom/sdk/go

go 1.25
