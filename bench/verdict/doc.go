// Package verdict judges a crowd's admissions: whether a room kept its rate, and whether it kept its order.
package verdict
