// Package backtest tests estimators against sales: it simulates a room's queue on a clock of its own, asks for estimates
// when visitors would, and compares each with the real wait. Sales are synthetic, or made of a room's exported history.
package backtest
