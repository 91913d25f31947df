package main

func init() {
	tables["httpproperties"] = []mutation{
		{File: "transport/http/properties.go", Old: `"iothub-userid", "System.UserID"`,
			New:  `"iothub-user-id", "System.UserID"`,
			Test: "./transport/http -run TestSystemPropertiesArrive"},
		{File: "transport/http/properties.go", Old: `{"", "Output",`, New: `{"iothub-outputname", "Output",`,
			Test: "./transport/http -run TestModulesHaveTelemetryOnly"},
		{File: "transport/http/properties.go", Old: "if *s != noSystem {", New: "if true {",
			Test: "./transport/http -run TestPropertiesOfADelivery"},
		{File: "transport/http/properties.go", Old: "if !plain(v) {", New: "if false {",
			Test: "./transport/http -run TestFormsOfAMessage"},
		{File: "transport/http/properties.go", Old: "size += len(v)", New: "",
			Test: "./transport/http -run TestFormsOfAMessage"},
	}
}
