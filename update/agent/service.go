package agent

import (
	"context"
	"time"
)

// Service is where offers come from and reports go to. The agent calls one method at a time, for 2
// minutes at most: then ctx ends. Errors are a *transport.Error: package errfilter decides by them
// whether a call is worth a retry.
type Service interface {
	// Check asks for an update. Without one, Answer.Offer is nil.
	Check(ctx context.Context, q *Query) (*Answer, error)
	// Report tells how an update stands or how it ended. It returns nil when the service has
	// acknowledged the report. The agent repeats a final report until then, also after a reset, so the
	// same report may come twice. It gives a final report up if the service has refused the report
	// itself: an error of Scope Operation and Kind Conflict, Invalid, NotFound, TooLarge or
	// Unsupported. Until then the later reports wait.
	Report(ctx context.Context, r *Report) error
}

// Waker is a Service that knows when a Check would have news.
type Waker interface {
	// Wake returns a channel that receives a value when the agent shall call Check.
	Wake() <-chan struct{}
}

// Query is the question whether there is an update.
type Query struct {
	// Onboarding: the device asks before its first registration.
	Onboarding bool
	// Installed is the update that the device has. Zero: not known.
	Installed UpdateID
	// Profile is the version of the agreement between agent and service, from 1 on.
	Profile    int
	Properties Properties
	// Memo is the Memo of the latest Answer, also from before a reset.
	Memo Memo
}

// Memo is what a Service wants to have again at the next Check. Each text has at most MaxETag or
// MaxURL bytes.
type Memo struct {
	AgentInfoETag, ConfigETag string
	// RootKeysURL is where the package with root keys is. Empty: not known.
	RootKeysURL string
}

// Answer is the answer to a Query.
type Answer struct {
	// Memo replaces the agent's.
	Memo Memo
	// Offer is the update that the device shall have, nil for none.
	Offer *Offer
	// Cancel is the id of a workflow that the service takes back. Empty: none.
	Cancel string
	// RetryAfter is the least time until the next Check. 0: the agent's interval.
	RetryAfter time.Duration
}

// Offer is an update that the service offers. Nothing of it may be believed before Options.Verify
// has accepted Manifest.
type Offer struct {
	// WorkflowID names this offer: 1 to MaxWorkflowID bytes. Of another offer with the id of the
	// current workflow, and of the same update, the agent takes over the URLs: they may have expired.
	// It ignores an offer whose workflow has ended.
	WorkflowID string
	// Manifest is the text as it was signed: its JSON string unescaped once. It may name a file with
	// the whole manifest by detachedManifestFileId.
	Manifest  []byte
	Signature string
	// URLs has the address of each file by its id.
	URLs map[string]string
	// RootKeysURL overrides Memo.RootKeysURL, for services that send it with the offer.
	RootKeysURL string
}

// Limits of what comes from a service. Larger values are refused.
const (
	MaxWorkflowID = 128
	MaxETag       = 128
	MaxURL        = 4096
	MaxManifest   = 64 << 10
	MaxSignature  = 8 << 10
	MaxSteps      = 32
	MaxFiles      = 128
	MaxFileSize   = 1 << 40
)
