// Package faketime sets the clock of tests that run in a bubble of testing/synctest.
package faketime

import "time"

// day is what Start moves the clock to.
var day = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// Start moves the bubble's clock from the year 2000, where each bubble begins, to 2030. A client
// takes a clock before the release of its own code for one that is not set
// (transport.Credentials.Implausible). Call it before anything else in the bubble.
func Start() { time.Sleep(time.Until(day)) }
