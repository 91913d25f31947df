package main

func init() {
	const (
		lexing    = "testbroker/internal/query/lex.go"
		parsing   = "testbroker/internal/query/parse.go"
		paths     = "testbroker/internal/query/path.go"
		condition = "testbroker/internal/query/condition.go"
		operands  = "testbroker/internal/query/operand.go"
		values    = "testbroker/internal/query/value.go"
		rows      = "testbroker/internal/query/run.go"
		pages     = "testbroker/internal/servicefront/query.go"
		cursors   = "testbroker/internal/servicefront/page.go"
		bulk      = "testbroker/internal/servicefront/bulk.go"

		selects   = "./testbroker/internal/query -run TestConditionsSelectDocuments"
		makesRows = "./testbroker/internal/query -run TestSelectMakesRows"
		positions = "./testbroker/internal/query -run TestErrorsNameThePosition"
		paging    = "./testbroker -run TestQueriesComeInPages"
		refusals  = "./testbroker -run TestBadQueriesAreRefused"
		inBulk    = "./testbroker -run TestBulkOperations"
	)
	tables["query"] = []mutation{
		{File: lexing, Old: "utf16.IsSurrogate(r) && strings.HasPrefix", New: "!utf16.IsSurrogate(r) && strings.HasPrefix",
			Test: selects},
		{File: lexing, Old: "if end <= len(\"[[\") {", New: "if end < 0 {", Test: positions},
		{File: parsing, Old: "if len(text) > maxLength {", New: "if false {", Test: positions},
		{File: parsing, Old: "utf8.RuneCountInString(l.text[:offset]) + 1", New: "len(l.text[:offset]) + 1",
			Test: positions},
		{File: parsing, Old: "if names[c.name] {", New: "if false {", Test: positions},
		{File: parsing, Old: "c.aggregate == \"\" && q.Grouped() &&", New: "false &&", Test: positions},
		{File: parsing, Old: "if q.groups != nil && q.Whole() {", New: "if false {", Test: positions},
		{File: parsing, Old: "\tp.strip(q)\n", New: "", Test: makesRows},
		{File: paths, Old: "case isReserved(t.text):", New: "case false:", Test: positions},
		{File: paths, Old: "if len(full) > 2 && below", New: "if false && below",
			Test: "./testbroker/internal/query -run TestModulesAreACollection"},
		{File: paths, Old: "if !p.freeCase(i) {", New: "if !p.freeCase(i) && false {", Test: selects},
		{File: paths, Old: "i == 1 && !strings.EqualFold(p[0], \"tags\")", New: "i == 1", Test: selects},
		{File: condition, Old: "if p.depth == maxDepth {", New: "if false {",
			Test: "./testbroker/internal/query -run TestNestingHasALimit"},
		{File: condition, Old: "case v.kind != typeBool:\n\t\t\t\tresult = value{}",
			New: "case v.kind != typeBool:\n\t\t\t\treturn value{}", Test: selects},
		{File: condition, Old: "return boolean(!v.truth)", New: "return boolean(v.truth)", Test: selects},
		{File: condition, Old: "if result == unknown ||", New: "if false ||", Test: selects},
		{File: condition, Old: "result == different && !anyTypes",
			New: "result == different && anyTypes", Test: selects},
		{File: condition, Old: "if v.kind == typeUndefined {", New: "if false {", Test: selects},
		{File: condition, Old: "boolean(in == slices", New: "boolean(true == slices", Test: selects},
		{File: operands, Old: "p.calculation(p.product, \"+\", \"-\")",
			New: "p.calculation(p.operand, \"+\", \"-\", \"*\", \"/\", \"%\")", Test: selects},
		{File: operands, Old: "if len(arguments) != f.arguments {", New: "if len(arguments) > maxArguments {",
			Test: positions},
		{File: values, Old: "if math.IsInf(f, 0) || math.IsNaN(f) {", New: "if math.IsNaN(f) {",
			Test: "./testbroker/internal/query -run TestSumsOutOfRange"},
		{File: values, Old: "if a.kind != b.kind {", New: "if false {", Test: selects},
		{File: rows, Old: "if q.groups == nil {", New: "if false {", Test: makesRows},
		{File: rows, Old: "key = append(key, text...)", New: "_ = text", Test: makesRows},
		{File: rows, Old: "if most > 0 && len(all) > most {", New: "if false {", Test: makesRows},
		{File: rows, Old: "groups = groups[min(from, len(groups)):]", New: "_ = from",
			Test: "./testbroker/internal/query -run TestPagesOfGroups"},
		{File: rows, Old: "[]valueType{typeNumber, typeString}", New: "[]valueType{typeString, typeNumber}",
			Test: makesRows},

		{File: cursors, Old: "if string(raw[:cursorSum]) != string(cursorCheck(content, text)) {", New: "if false {",
			Test: refusals},
		{File: cursors, Old: "[]byte(content + \"\\n\" + text)", New: "[]byte(content)", Test: refusals},
		{File: pages, Old: "most = asked.Top() - from.rows", New: "most = asked.Top()", Test: paging},
		{File: cursors, Old: "key <= from.after", New: "key < from.after", Test: paging},
		{File: pages, Old: "asked.Groups(all, from.rows, size)", New: "asked.Groups(all, 0, size)", Test: paging},
		{File: pages, Old: "if asked.Whole() {", New: "if true {", Test: "./testbroker -run TestQueriesMakeRows"},
		{File: pages, Old: "(c == query.Modules)", New: "false", Test: "./testbroker -run TestQueriesFindTwins"},
		{File: bulk, Old: "len(all) > maxBulk {", New: "false {", Test: inBulk},
		{File: bulk, Old: "if seen[id] {", New: "if false {", Test: inBulk},
		{File: bulk, Old: "\tif !result.IsSuccessful {\n", New: "\tif false {\n", Test: inBulk},
		{File: bulk, Old: "if mode.ifMatch {\n\t\tetag =", New: "if false {\n\t\tetag =", Test: inBulk},
		{File: bulk, Old: "err != nil || !mode.twin {", New: "err != nil {", Test: inBulk},
		{File: bulk, Old: "u.Etag == \"\" {", New: "false {", Test: inBulk},
		{File: "testbroker/internal/hub/registry.go", Old: "h.registry[m] == nil {\n\t\t\th.addLocked(m",
			New: "true {\n\t\t\th.addLocked(m", Test: "./testbroker -run TestDevicesWithAnEdgeGateway"},
		{File: "testbroker/internal/hub/fronts.go", Old: "\th.addEdgeModulesLocked(id, old)\n", New: "",
			Test: "./testbroker -run TestDevicesWithAnEdgeGateway"},
		{File: "testbroker/internal/amqpfront/conn.go", Old: "\ta.c.Candidate(id)\n", New: "",
			Test: "./testbroker -run TestQueriesSeeConnections"},
		{File: "testbroker/internal/web/route.go", Old: "encodedSlashes.Replace(escaped);", New: "escaped;",
			Test: "./testbroker -run TestSlashesOfBackEnds"},
	}
}
