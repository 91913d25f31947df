package main

func init() {
	const test = "./transport/netopt -run TestFailover"
	tables["failover"] = []mutation{
		{File: "transport/netopt/failover.go", Old: "uint32((at + 1) % n)", New: "uint32(at)", Test: test},
		{File: "transport/netopt/failover.go", Old: "f.next.Store(rand.Uint32N(uint32(len(addrs))))",
			New: "_ = rand.Uint32N", Test: test},
		{File: "transport/netopt/failover.go", Old: "time.Until(end)/time.Duration(left)", New: "time.Until(end)",
			Test: test},
		{File: "transport/netopt/failover.go", Old: "limit := failoverLimit", New: "limit := time.Hour", Test: test},
		{File: "transport/netopt/failover.go", Old: "if ctx.Err() != nil {", New: "if false {", Test: test},
		{File: "transport/netopt/failover.go", Old: "at := (first + i) % n", New: "at := first", Test: test},
		{File: "transport/netopt/failover.go", Old: "|| n == 0 {", New: "|| n == 1 << 20 {", Test: test},
		{File: "transport/mqtt/lean/mqtt5_connect.go", Old: "if h.Body == 2 {", New: "if false {",
			Test: "./transport/mqtt/lean -run TestABrokerWithoutMQTT5SaysSo"},
	}
}
