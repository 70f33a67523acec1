// Command cost measures the gateway's processor time for the worst request of each kind that its limits admit, or just
// refuse, beside a plain request of the same length to the same endpoint. It is an error if one of them costs more than ten
// times a plain one.
//
// A round sends a batch of plain requests and a batch of the others and reads the gateway's clock before and after each. The
// figure of a case is the median of its rounds.
package main
