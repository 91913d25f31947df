package classic

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/update/agent"
)

// result is the result of an update or, without Steps, of one of its steps.
type result struct {
	Code     int               `json:"resultCode"`
	Extended string            `json:"extendedResultCodes"`
	Details  string            `json:"resultDetails"`
	Steps    map[string]result `json:"stepResults,omitempty"`
}

// outcomes says how the outcome of an update is reported. Codes above 0 are successes.
var outcomes = map[agent.Outcome]struct{ state, code, step int }{
	agent.OutcomeInProgress: {state: stateInProgress, code: 400, step: 400},
	agent.OutcomeSucceeded:  {state: stateIdle, code: 700, step: 700},
	agent.OutcomeSkipped:    {state: stateIdle, code: 700, step: 603},
	agent.OutcomeFailed:     {state: stateFailed, code: 0, step: 0},
	agent.OutcomeCanceled:   {state: stateIdle, code: -1, step: -1},
}

// report sets how an update stands.
func (a *agentInfo) report(r *agent.Report) {
	o := outcomes[r.Result.Outcome]
	a.setState(o.state, named(r.WorkflowID))
	a.setInstalled(r.Installed)
	a.LastInstallResult = &result{Code: o.code, Extended: extended(r.Result.Extended), Details: r.Result.Details}
	if len(r.Steps) > 0 {
		a.LastInstallResult.Steps = stepResults(r.Steps)
	}
}

// stepResults returns the results by the names of the steps. Steps behind one that failed were not
// reached: their code is 0.
func stepResults(steps []agent.Result) map[string]result {
	results := make(map[string]result, len(steps))
	reached := true
	for i, step := range steps {
		r := result{Extended: extended(step.Extended), Details: shortened(step.Details)}
		if reached {
			r.Code = outcomes[step.Outcome].step
		}
		reached = reached && r.Code > 0
		results["step_"+strconv.Itoa(i)] = r
	}
	return results
}

// maxStepDetails is the limit of the text about a step, in bytes. All steps of an update have to
// fit into the 32 KiB of reported properties.
const maxStepDetails = 256

func shortened(text string) string {
	if len(text) > maxStepDetails {
		text = strings.ToValidUTF8(text[:maxStepDetails], "")
	}
	return text
}

// extended writes the codes as 8 hexadecimal digits each, with commas between them.
func extended(codes []uint32) string {
	if len(codes) == 0 {
		return "00000000"
	}
	text := ""
	for i, code := range codes {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf("%08X", code)
	}
	return text
}
