// Command surge lets a crowd wait at two gateways, speeds the room up, and reports who was overtaken and how long the room took.
package main
