// Package verdict decides from the admissions of many visitors whether a room kept its rate and its order.
package verdict
