package main

func init() {
	tables["renewal"] = []mutation{
		{File: "transport/amqp/session.go", Old: "s.commands.unsettled, s.commands.bySequence = nil, nil, nil, nil", New: "s.commands.unsettled = nil, nil, nil", Test: "./transport/amqp -run TestARedeliveryMeets"},
	}
}
