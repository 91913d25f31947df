package main

func init() {
	const (
		answer    = "edge/invoke_answer.go"
		disagrees = "./edge -run TestAnAnswerThatDisagreesWithItself"
	)
	tables["invokeoutcome"] = []mutation{
		// A call that may have run is sent again with another token.
		{File: "edge/invoke_call.go", Old: "\t\treturn Result{}, nil, refusal\n", New: "\t\treturn Result{}, refusal, nil\n",
			Test: "./edge -run TestAnUnknownOutcomeIsNotFollowedByACertainOne"},
		{File: "internal/hubauth/do.go", Old: "\t\tcase err != nil:\n\t\t\treturn err\n\t\tcase refusal == nil:",
			New:  "\t\tcase err != nil && again:\n\t\t\treturn err\n\t\tcase err != nil:\n\t\tcase refusal == nil:",
			Test: "./internal/hubauth -run TestOnlyARefusalIsSentAgain"},
		// The code, or its name, hides what the status leaves open, and the other way round.
		{File: answer, Old: "of.mayHaveRun || !o.mayHaveRun", New: "true", Test: disagrees},
		{File: answer, Old: "of.mayHaveRun || !o.mayHaveRun", New: "!o.mayHaveRun && !of.mayHaveRun", Test: disagrees},
		{File: answer, Old: "{e.Code, hubstatus.CodeOf(e.Name)}", New: "{hubstatus.CodeOf(e.Name)}", Test: disagrees},
		{File: answer, Old: "{e.Code, hubstatus.CodeOf(e.Name)}", New: "{e.Code}", Test: disagrees},
		{File: answer, Old: "return outcomeOfStatus(code / 1000)", New: "return outcome{}", Test: disagrees},
	}
}
