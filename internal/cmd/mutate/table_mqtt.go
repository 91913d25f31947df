package main

func init() {
	tables["mqtt"] = []mutation{
		{
			File: "transport/mqtt/session.go",
			Old: "\t\t\trefused = wire.Refused(transport.OpSubscribe, wire.SubackMeaning(code).Kind, &SubackError{Filter: " +
				"sub.filters[i],\n",
			New: "\t\t\trefused = wire.Refused(transport.OpSubscribe, wire.SubackMeaning(code).Kind, &SubackError{Filter: " +
				"sub.filters[i*0],\n",
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
			Old: "\t\t\treply.Err = wire.Refused(transport.OpSubscribe, wire.SubackMeaning(code).Kind, &SubackError{Filter: " +
				"filters[i].Topic,\n\t\t\t\tCode: code})\n",
			New: "\t\t\treply.Err = wire.Refused(transport.OpSubscribe, " +
				"wire.SubackMeaning(code).Kind,\n\t\t\t\t&SubackError{Filter: filters[i*0].Topic, Code: code})\n",
			Test: "./transport/mqtt/lean -run TestARefusalNamesTheRefusedFilter",
		},
		{
			File: "transport/mqtt/lean/send.go",
			Old:  "\tfor ; len(body) > limit;",
			New: "\tif o.QoS > 0 {\n\t\ts.mu.Lock()\n\t\tt.unacked.Add(tag)\n\t\ts.mu.Unlock()\n\t}\n" +
				"\tfor ; len(body) > limit;",
			Test: "./transport/mqtt/lean -run TestAPubackForAPartOfAMessageIsIgnored",
		},
	}
}
