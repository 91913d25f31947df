package main

func init() {
	const (
		front = "testbroker/internal/mqttfront/"
		test  = "./testbroker -run "
	)
	tables["desk"] = []mutation{
		// A client that only publishes is alive.
		{File: front + "read.go", Old: "c.begun, c.active = false, true", New: "c.begun = false",
			Test: test + "TestKeepAliveOfAPublishingClient"},
		{File: front + "read.go", Old: "c.begun, c.active = false, true", New: "c.active = true",
			Test: test + "TestMessageFaults"},
		// Packets are found in any pieces, and answered in order.
		{File: front + "read.go", Old: "len(c.inbox.in) < size {", New: "len(c.inbox.in) < head {",
			Test: test + "TestMessagesInPieces"},
		{File: front + "read.go", Old: "b.in = b.buf[:copy(b.buf, old)]", New: "b.in = b.buf[:len(old)]",
			Test: test + "TestMessagesInPieces"},
		{File: front + "read.go", Old: "if err != nil || c.pass > 0 {", New: "if false {",
			Test: test + "PubacksThatWaitForTheStoreComeInTheirTurn"},
		// A message shares no memory with the buffer.
		{File: front + "read.go", Old: "pk.Payload = bytes.Clone(pk.Payload)", New: "_ = bytes.Clone",
			Test: test + "TestMessagesInPieces"},
		// A fault is used up by a message that the hub discards.
		{File: front + "read.go", Old: "\t\tif c.Mode.Load() != hub.Open {", New: "\t\tif false {",
			Test: test + "TestNoFaultHitsAConnectionThatHasEnded"},
		// A reset over TCP takes back PUBACKs.
		{File: "testbroker/internal/hub/socket.go", Old: "\tif s.unsent > 0 {", New: "\tif false {",
			Test: test + "TestPubacksReachTheClientBeforeAReset"},
		// The report of a half-open connection's end hides how it ended.
		{File: front + "read.go", Old: "\t\t\treturn c.Drain()",
			New:  "\t\t\tc.Drain()\n\t\t\treturn errors.ErrUnsupported",
			Test: test + "TestTheEndOfAHalfOpenConnectionIsReported"},
		{File: front + "hook.go", Old: "c.SetCause(c.Drain())", New: "c.Drain()",
			Test: test + "TestTheEndOfAHalfOpenConnectionIsReported"},
		{File: "testbroker/internal/brokerfront/front.go", Old: "\t\t\treturn c.Drain()",
			New: "\t\t\tc.Drain()\n\t\t\treturn nil", Test: test + "TestTheEndOfAHalfOpenConnectionIsReported"},
		// Idle connections have the buffers of a burst.
		{File: front + "read.go", Old: "size == 0 || b.few && len(b.in) < leastRead:", New: "size == 0:",
			Test: test + "TestIdleConnections"},
		{File: "testbroker/internal/hub/socket.go", Old: " || cap(buf) > keepIdle && len(buf) <= keepIdle {",
			New: " {", Test: test + "TestIdleConnections"},
		{File: "testbroker/internal/amqp/write.go", Old: " || n > keepIdle && len(c.out) <= keepIdle {", New: " {",
			Test: "./testbroker/internal/amqp -run Idle"},
		// Forgotten events stay in memory.
		{File: "testbroker/internal/eventhub/log.go", Old: "\tclear(p.entries[:n])\n", New: "",
			Test: "./testbroker/internal/eventhub -run TestForgottenEventsAreFreed"},
		// What is written value by value is what is written as a whole.
		{File: "internal/amqpwire/fields.go", Old: "for ; f.absent > 0; f.absent-- {",
			New: "for f.absent = 0; f.absent > 0; {", Test: "./internal/amqpwire -run FuzzFields"},
	}
}
