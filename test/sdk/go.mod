module github.com/anteroom/anteroom/test/sdk

go 1.26.0

require (
	github.com/anteroom/anteroom v0.0.0
	github.com/anteroom/anteroom/sdk/go v0.0.0
)

require github.com/golang-jwt/jwt/v5 v5.3.1 // indirect

replace github.com/anteroom/anteroom => ../..

replace github.com/anteroom/anteroom/sdk/go => ../../sdk/go
