package main

func init() {
	tables["formats"] = []mutation{
		{File: "outbox/load.go", Old: "number >= q.done && !hasKnownFormat(message)", New: "false",
			Test: "./outbox -run TestOpenRefusesAFormatThatItDoesNotKnow"},
		{File: "outbox/load.go", Old: "number >= q.done && !hasKnownFormat(message)", New: "!hasKnownFormat(message)",
			Test: "./outbox -run TestAnUnknownFormatOfAMessageThatIsDone"},
		{File: "outbox/codec.go", Old: "b[0] == version && b[1] <= allFlags", New: "b[0] == version",
			Test: "./outbox -run TestOpenRefusesAFormatThatItDoesNotKnow"},
		{File: "outbox/codec.go", Old: "b[0] == version && b[1] <= allFlags", New: "b[1] <= allFlags",
			Test: "./outbox -run TestOpenRefusesAFormatThatItDoesNotKnow"},
	}
}
