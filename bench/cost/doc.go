// Command cost measures the processor time that the gateway spends on the worst request of each kind which its limits let
// in, or just refuse, beside a plain request of the same length in the same place. It ends with 1 where one of them costs
// more than ten times a plain one.
//
// A round sends a batch of plain requests, then a batch of the others, each over one connection, and reads the gateway's
// clock before and after. The figure of a case is the median of its rounds.
package main
