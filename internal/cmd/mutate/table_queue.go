package main

func init() {
	const test = "./testbroker/internal/hub -run TestMessagesKeepTheirOrder"
	tables["queues"] = []mutation{
		// A later message passes one that the receiver has refused for the moment.
		{File: "testbroker/internal/hub/c2dqueue.go", Old: "takes = q.to.Skips(e)", New: "", Test: test},
		// A message that the receiver cannot take stops the queue.
		{File: "testbroker/internal/hub/c2dqueue.go", Old: "takes = q.to.Skips(e)", New: "takes = false", Test: test},
	}
}
