// Package access holds the roles of operators, the rooms that a role is for, and the rules that compare both with a request.
// It is pure and knows neither tokens nor requests.
package access
