package main

func init() {
	tables["tlsdamage"] = []mutation{
		{File: "errfilter/errfilter.go", Old: "if d.row >= MaxDamage {", New: "if false {",
			Test: "./errfilter -run TestDamageIsRetried"},
		{File: "errfilter/errfilter.go", Old: "\t\td.row = 0\n", New: "", Test: "./errfilter -run TestDamageIsRetried"},
		{File: "device/dial.go", Old: "l.damage = errfilter.Damage{}", New: "_ = errfilter.Damage{}",
			Test: "./device -run TestAConnectionResetsTheCountOfDamage"},
		{File: "device/outage.go", Old: "\t\t\tl.damage = errfilter.Damage{}\n", New: "",
			Test: "./device -run TestDamageWithoutEnd"},
		{File: "device/outage.go", Old: "err = l.damage.Judge(err)", New: "",
			Test: "./internal/sim -run TestADamagedClientHello"},
		{File: "fileupload/upload.go", Old: "var damage errfilter.Damage\n\ttry := func(ctx context.Context) error { return",
			New:  "try := func(ctx context.Context) error { var damage errfilter.Damage; return",
			Test: "./fileupload -run TestAServiceThatRefusesTLS"},
		{File: "transport/neterr/neterr.go", Old: "case transport.Protocol, transport.Unsupported, ",
			New: "case transport.Protocol, ", Test: "./internal/sim -run TestADamagedClientHello"},
		{File: "transport/neterr/neterr.go", Old: "return as[tls.RecordHeaderError](err)", New: "return false",
			Test: "./internal/sim -run TestAServerThatRefusesTLS"},
	}
}
