package dpsupdate_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/dpsupdate"
)

// peer is a provisioning.Carrier to a service that answers as written. The last answer is given
// again and again.
type peer struct {
	answers  []provisioning.Answer
	requests []provisioning.Request
}

func (p *peer) Open(context.Context, *provisioning.Login) (provisioning.Session, error) {
	return p, nil
}

func (p *peer) Exchange(_ context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	p.requests = append(p.requests, *r)
	a := p.answers[0]
	if len(p.answers) > 1 {
		p.answers = p.answers[1:]
	}
	return &a, nil
}

func (p *peer) Close() {}

// answering returns a peer that gives one answer, of a number of seconds to wait if that is not 0.
func answering(status int, body string, seconds int) *peer {
	return &peer{answers: []provisioning.Answer{{Status: status, Body: []byte(body),
		RetryAfter: time.Duration(seconds) * time.Second}}}
}

func (p *peer) service(t testing.TB, o *dpsupdate.Options) *dpsupdate.Service {
	t.Helper()
	client, err := provisioning.New(&provisioning.Identity{IDScope: "0ne", RegistrationID: "reg-1"}, p, nil)
	require.NoError(t, err)
	s, err := dpsupdate.New(client, o)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdle)
	return s
}

// query is the one of the notes.
func query() *agent.Query {
	return &agent.Query{Profile: 1, Installed: agent.UpdateID{Provider: "Contoso", Name: "Tractor", Version: "1.0"},
		Properties: agent.Properties{{Name: "manufacturer", Value: "Contoso"}, {Name: "model", Value: "Tractor"}},
		Memo:       agent.Memo{AgentInfoETag: "aaa", ConfigETag: "bbb"}}
}

// final is the report of the notes.
func final() *agent.Report {
	return &agent.Report{WorkflowID: "wf-1", Installed: query().Installed,
		Result: agent.Result{Outcome: agent.OutcomeFailed, Origin: agent.OriginAgentCore, Code: -1,
			Extended: []uint32{0x80000001}, Details: "step two failed"},
		Steps: []agent.Result{{Outcome: agent.OutcomeSucceeded, Code: 700},
			{Outcome: agent.OutcomeFailed, Origin: agent.OriginAgentCore, Code: -1, Extended: []uint32{0x80000001},
				Details: "step two failed"}}}
}
