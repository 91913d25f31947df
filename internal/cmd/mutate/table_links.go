package main

func init() {
	tables["links"] = []mutation{
		// The ack time-out restarts at each progress.
		{File: "device/connection.go", Old: "\tfrom = l.conn.lastProgress(from)\n", New: "",
			Test: "./device -run TestAnAnswerIsDueSinceTheLastProgress"},
		{File: "device/connection.go", Old: "\treturn k.ackTimeout / 8\n", New: "\treturn k.ackTimeout\n",
			Test: "./internal/sim -run TestAVerySlowLink"},
		{File: "device/connection.go", Old: "if !k.silent.IsZero() {", New: "if false {",
			Test: "./device -run TestAConnectionThatAnswersNothing"},
		{File: "device/connection.go", Old: "if at.Before(l.conn.ackCheck) && l.c.outbox.unanswered(l.conn.upSince) {",
			New:  "if false {",
			Test: "./device -run TestAConnectionThatAnswersNothing"},

		// Writes.
		{File: "internal/dialer/progressconn.go", Old: "\tif l.resumes {\n\t\tstep /= samplesPerTimeout\n\t}\n",
			New:  "\tstep /= samplesPerTimeout\n",
			Test: "./internal/dialer -run TestAConnectionThatIsNoSocket"},
		{File: "internal/dialer/progressconn.go", Old: "reads, moved := l.reads.Load(), n > 0",
			New:  "reads, moved := uint64(0), n > 0",
			Test: "./transport/mqtt -run TestAPeerThatStopsReading"},
		{File: "internal/dialer/progressconn.go", Old: "h != reads && now.Sub(taken) < maxReadOnly*l.timeout",
			New: "h != reads && !taken.IsZero()", Test: "./internal/dialer -run TestAWriteWithoutProgress -timeout 20s"},
		{File: "internal/dialer/progressconn.go", Old: "acked, moved = a, true", New: "acked = a",
			Test: "./internal/dialer -run TestAWriteWaitsWhileTheKernelSends"},
		{File: "internal/dialer/progressconn.go", Old: "now < before.written && before.at.After(l.progress)",
			New: "before.at.After(l.progress)", Test: "./internal/dialer -run TestProgressFollowsTheKernel"},
		{File: "internal/dialer/progressconn.go", Old: "\t\tat = earlier(at, l.writeDeadline)\n", New: "",
			Test: "./internal/dialer -run TestSetWriteDeadline"},
		{File: "internal/dialer/progressconn.go", Old: "below.timeout = timeout // nobody writes yet", New: "",
			Test: "./internal/dialer -run TestAProgressConnOverAnother"},

		// Pings behind messages.
		{File: "transport/mqtt/conn.go", Old: "\tc.beat.progressed(progress)\n", New: "\t_ = progress\n",
			Test: "./internal/sim -run TestAVerySlowLink/paho"},
		{File: "transport/mqtt/lean/session.go", Old: "\t\t\t\tif s.stillProgressing() {\n\t\t\t\t\tcontinue\n\t\t\t\t}\n",
			New:  "",
			Test: "./internal/sim -run TestAVerySlowLink/lean"},

		// State learnt about a link, redeliveries, silent networks.
		{File: "transport/amqp/window.go", Old: "w.learnt.size.Store(max(size/2, leastWindow))",
			New: "w.learnt.size.Store(size)", Test: "./transport/amqp -run TestTheWindowOfASlowConnection"},
		{File: "device/inbox.go", Old: "\tp.msg.Redelivered = d.Again\n", New: "",
			Test: "./internal/sim -run TestTheHandlerIsToldOfARedelivery"},
		{File: "transport/http/watch.go", Old: "\t\tw.silent = true\n\t\tw.cancel()\n", New: "",
			Test: "./transport/http -run TestASilentNetwork"},
		{File: "transport/http/options.go", Old: "\t\tboundSilence(c, o.silence())\n", New: "",
			Test: "./transport/http -run TestAPeerThatTakesNothing"},
	}
}
