package main

func init() {
	tables["mqtt"] = []mutation{
		{
			File: "transport/mqtt/session.go",
			Old:  "Filter: sub.filters[i], Code: code",
			New:  "Filter: sub.filters[i*0], Code: code",
			Test: "./transport/mqtt -run TestARefusalNamesTheRefusedFilter",
		},
		{
			File: "transport/mqtt/session.go",
			Old:  "if !wire.Granted(code) {",
			New:  "if !wire.Granted(code) && i == 0 {",
			Test: "./transport/mqtt -run TestARefusalNamesTheRefusedFilter",
		},
		{
			File: "transport/mqtt/session.go",
			Old:  "if len(sub.filters) != len(codes) || len(codes) == 0 {",
			New:  "if len(codes) == 0 {",
			Test: "./transport/mqtt",
		},
		{
			File: "transport/mqtt/lean/session.go",
			Old:  "Filter: filters[i].Topic, Code: code",
			New:  "Filter: filters[i*0].Topic, Code: code",
			Test: "./transport/mqtt/lean -run TestARefusalNamesTheRefusedFilter",
		},
	}
}
