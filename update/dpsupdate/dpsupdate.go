package dpsupdate

import (
	"context"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// Options are the settings of a Service. The zero value and nil mean all defaults.
type Options struct {
	// AgentVersion is the version of the program's agent for the service: 1 to 64 bytes. Empty:
	// "1.0.0".
	AgentVersion string
	// EndorsementKey and StorageRootKey are the public areas of a TPM, each as TPM2B_PUBLIC, for a
	// service that wants to know them. Nil: none.
	EndorsementKey, StorageRootKey []byte
	// DraftNames calls the operations by the names of drafts, "iotdps-get-deviceupdate" and its like,
	// for a service that knows only those.
	DraftNames bool
}

// Service asks for updates and reports. Its methods are safe for concurrent use; calls follow each
// other. Make it with New.
type Service struct {
	client *provisioning.Client
	opt    Options
}

var _ agent.Service = (*Service)(nil)

// New returns a Service for the device of client; nil options mean all defaults. The error is of
// Kind Invalid.
func New(client *provisioning.Client, o *Options) (*Service, error) {
	s := &Service{client: client}
	if o != nil {
		s.opt = *o
	}
	if s.opt.AgentVersion == "" {
		s.opt.AgentVersion = "1.0.0"
	}
	switch {
	case client == nil:
		return nil, invalid("client is nil; provisioning.New makes one")
	case len(s.opt.AgentVersion) > maxText:
		return nil, invalid("options: AgentVersion has more than 64 bytes")
	case len(s.opt.StorageRootKey) > 0 && len(s.opt.EndorsementKey) == 0:
		return nil, invalid("options: StorageRootKey is set without EndorsementKey; give both")
	}
	return s, nil
}

// An operation is one of the update service's.
type operation struct {
	name  string
	draft string // its name in drafts
}

var (
	onboarding = operation{"requestOnboardingUpdates", "iotdps-get-onboarding-deviceupdate"}
	regular    = operation{"requestSoftwareUpdates", "iotdps-get-deviceupdate"}
	report     = operation{"reportUpdateStatus", "iotdps-report-deviceupdatestatus"}
)

// call sends a request.
func (s *Service) call(ctx context.Context, o operation, body []byte) (*provisioning.Answer, error) {
	if s.opt.DraftNames {
		return s.client.Call(ctx, o.draft, body)
	}
	return s.client.Call(ctx, o.name, body)
}

// Check asks whether there is an update. If the service calls an etag of q.Memo outdated, it asks
// again, at once, without that.
func (s *Service) Check(ctx context.Context, q *agent.Query) (*agent.Answer, error) {
	asked, o := *q, regular
	if q.Onboarding {
		o = onboarding
	}
	if err := checkQuery(q); err != nil {
		return nil, err
	}
	for {
		a, err := s.call(ctx, o, s.appendCheck(nil, &asked))
		if err != nil {
			return nil, err
		}
		failure, remedy := refusal(a, true)
		if failure == nil {
			return readAnswer(a, asked.Memo)
		}
		sent := asked.Memo
		switch remedy {
		case noService:
			return &agent.Answer{Memo: q.Memo, RetryAfter: failure.RetryAfter}, nil
		case withoutETags:
			asked.Memo.AgentInfoETag, asked.Memo.ConfigETag = "", ""
		case withoutConfigETag:
			asked.Memo.ConfigETag = ""
		case none:
		}
		if asked.Memo == sent { // the same request would get the same answer
			return nil, failure
		}
	}
}

// Report tells the service how an update stands. Equal reports may follow each other. The error has
// Kind Conflict if the service has another final report of the workflow. A refusal that is not
// about the report has Scope Connection: the agent sends the report again.
func (s *Service) Report(ctx context.Context, r *agent.Report) error {
	if err := checkReport(r); err != nil {
		return err
	}
	a, err := s.call(ctx, report, s.appendReport(nil, r))
	if err != nil {
		return err
	}
	if failure, remedy := refusal(a, false); failure != nil {
		if remedy == noService || !isVerdict(failure) {
			failure.Scope = transport.ScopeConnection
		}
		return failure
	}
	if len(a.Body) > 0 && !jsonscan.IsObject(a.Body) {
		return violation("the answer to a report is not a JSON object")
	}
	return nil
}
