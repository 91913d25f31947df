package main

func init() {
	const folder = "cross/arm/board/atmodem/"
	const answers = "./" + folder + " -run TestAnswers"
	const network = "./" + folder + " -run TestTheSIM|TestAPIN|TestTheNetwork|TestANetwork|TestTLS|TestTheLadder|" +
		"TestAPower|TestAModem"
	tables["modem"] = []mutation{
		{File: folder + "start.go", Old: "ok && !at.IsZero() && ", New: "ok && ",
			Test: "./" + folder + " -run TestTwoAnswers"},
		{File: folder + "exec.go", Old: "n < 0 || n > min(m.args.length, len(x.in))", New: "n < 0",
			Test: answers},
		{File: folder + "exec.go", Old: "if n > 0 && m.text[0] != x.tail[0] {", New: "if n > 1 {", Test: answers},
		{File: folder + "exec.go", Old: "\t\t\tx.final = false\n", New: "\t\t\tx.final = true\n", Test: answers},
		{File: folder + "line.go", Old: "case l.n == len(l.text):", New: "case l.n == 1000:",
			Test: "./" + folder + " -run TestLines"},
		{File: folder + "start.go", Old: "\tm.pin = pinTried\n", New: "", Test: network},
		{File: folder + "start.go", Old: "case m.pin == pinTried:", New: "case false:", Test: network},
		{File: folder + "start.go", Old: "d.triesField)) != threeTries {", New: "d.triesField)) == 0 {", Test: network},
		{File: folder + "start.go", Old: "case now.Sub(m.denied) >= deniedLimit:", New: "case true:", Test: network},
		{File: folder + "start.go", Old: "!none.Implausible(t)", New: "t != none.Earliest", Test: network},
		{File: folder + "recover.go", Old: "bits.Len(uint(before)) < bits.Len(uint(after))",
			New:  "bits.Len(uint(before)) <= bits.Len(uint(after))",
			Test: "./" + folder + " -run TestRungs"},
		{File: folder + "conn.go", Old: "!m.cfg.Plain && !m.clockSeen {", New: "false {", Test: network},
		{File: folder + "conn.go", Old: "m.nextID = (m.nextID + 1) % service.ids", New: "m.nextID = 0",
			Test: "./" + folder + " -run TestNews"},
		{File: folder + "config.go", Old: "case !c.Plain && !c.AnyName && !c.Dialect.checksName:", New: "case false:"},
		{File: folder + "config.go", Old: "c == '\"' ||", New: "false ||"},
		{File: folder + "quectel.go", Old: "\"seclevel\",1,1`", New: "\"seclevel\",1,0`", Test: network},
		{File: folder + "quectel.go", Old: "\"checkhost\",1,1`", New: "\"checkhost\",1,0`", Test: network},
		{File: folder + "simcom.go", Old: "\"authmode\",0,1`", New: "\"authmode\",0,0`", Test: network},
	}
}
