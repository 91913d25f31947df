package main

func init() {
	tables["update"] = []mutation{
		{File: "update/journal.go", Old: "at: -1}", New: "at: 0}",
			Test: "./update -run PowerCut"},
		{File: "update/journal.go", Old: "block, at = 1-block, 0", New: "at = 0", Test: "./update -run PowerCut"},
		{File: "update/journal.go", Old: "	s.number = j.now.number\n", New: "	s.number = j.now.number\n	j.now.number--\n",
			Test: "./update -run TestAFailedWriteKeepsTheState"},
		{File: "update/journal.go", Old: "int32(s.number-j.now.number) > 0", New: "true", Test: "./update -run PowerCut"},
		{File: "update/boot.go", Old: "			s.tries--\n", New: "",
			Test: "./update -run TestAnImageThatDoesNotConfirmGoesBack"},
		{File: "update/boot.go", Old: "s.tries > 0 && intact(l, s.other(), s.next(), buf)", New: "s.tries > 0",
			Test: "./update -run TestDecayIsNoticedAtTheStart"},
		{File: "update/boot.go", Old: "s.next().Confirmed && ", New: "",
			Test: "./update -run TestAnImageThatWasNeverConfirmed"},
		{File: "update/record.go", Old: "p[atCheck:stateBytes]) != 1", New: "p[atCheck:stateBytes]) < 0",
			Test: "./update -run PowerCut"},
		{File: "update/record.go", Old: "		if m.Size > maxImage {\n			return false\n		}\n", New: "",
			Equivalent: "mount compares the sizes with the slots, which are not larger"},
		{File: "update/updater.go", Old: "	case !trusted:", New: "	case !trusted && failed != nil:",
			Test: "./update -run TestWhatIsNotTrusted"},
		{File: "update/updater.go", Old: "m.Version <= s.proven().Version", New: "m.Version < s.proven().Version",
			Test: "./update -run TestWhatIsNotTrusted"},
		{File: "update/updater.go", Old: "(s.outcome == RolledBack || s.outcome == Rejected)", New: "false",
			Test: "./update -run TestAnImage"},
		{File: "update/updater.go", Old: "!intact(&u.opt.Layout, s.other(), s.next(), u.buffer)", New: "false",
			Test: "./update -run TestAnImageWithAnotherHash"},
		{File: "update/updater.go", Old: "Timeout: -1,", New: "", Test: "./update -run TestAnOutageIsWaitedFor"},
		{File: "update/manifest.go", Old: "s[0] == '0' || ", New: "", Test: "./update -run TestAMalformedManifest"},
	}
}
