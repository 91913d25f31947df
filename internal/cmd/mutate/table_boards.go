package main

func init() {
	const folder = "cross/arm/board/flashlog/"
	tables["boards"] = []mutation{
		{File: folder + "log.go", Old: "err == nil && l.reads(b, off) {", New: "err == nil {"},
		{File: folder + "log.go", Old: "l.end += int64(size) // never", New: "// never"},
		{File: folder + "log.go", Old: "case number <= l.last:", New: "case number < l.last:"},
		{File: folder + "log.go", Old: "\t\tl.drop(1)\n", New: "\t\tl.pending = l.pending[1:]\n"},
		{File: folder + "log.go", Old: "\tl.active = (l.active + 1) % l.blocks\n", New: "\tl.active = 0\n"},
		{File: folder + "log.go", Old: "first: l.low(number), kind", New: "first: number, kind"},
		{File: folder + "load.go", Old: "if !intact(b, r.length) {", New: "if false {"},
		{File: folder + "load.go", Old: "int64(l.size(r.length)) > size", New: "false",
			Test: "./" + folder + " -run TestRecordsOutOfBounds"},
		{File: folder + "load.go", Old: "at += int64(l.write)\n", New: "at = l.block\n"},
		{File: folder + "load.go", Old: "end = from + int64(i+len(l.buf))", New: "end = from + int64(i)"},
		{File: folder + "load.go", Old: "r.number >= next && r", New: "next > 0 && r"},
		{File: folder + "load.go", Old: "l.last, l.noted = latest.number, max(latest.first, 1)",
			New: "l.last, l.noted = latest.number, 1"},
		{File: folder + "load.go", Old: "for range l.blocks - 1 {", New: "for range 0 {",
			Test: "./" + folder + " -run TestACompleteWrite"},
		{File: folder + "record.go", Old: "return r, r.length <= maxBody", New: "return r, true",
			Test: "./" + folder + " -run TestRecordsOutOfBounds"},
	}
}
