package dpscert

import (
	"context"
	"crypto"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

const (
	// requestLife is how long the hub may answer a request. After that the device makes another one.
	requestLife = 12 * time.Hour
	// maxAccepted is how many answers that the request is accepted extend the wait for the
	// certificate.
	maxAccepted = 10
	// maxAgain is how often one request is corrected at once.
	maxAgain = 2
)

// request is a request for a certificate.
type request struct {
	id      string
	name    string // the common name
	csr     []byte
	key     crypto.Signer
	keyName string
	replace string    // the requests that it replaces; empty: none
	until   time.Time // the hub forgets it then
	before  *held     // the certificate in use when it was made
}

// superseded reports whether the certificate in use has come from elsewhere meanwhile.
func (q *request) superseded(present *held) bool {
	return present != nil && (q.before == nil || present.cert.Leaf.NotBefore.After(q.before.cert.Leaf.NotBefore))
}

// newRequest makes a request, with a new key if the options want that.
func (r *Renewer) newRequest(ctx context.Context, name string) (*request, error) {
	key, keyName, err := r.nextKey(ctx)
	if err != nil {
		return nil, err
	}
	csr, err := Request(name, key)
	if err != nil {
		return nil, err
	}
	return &request{id: rand.Text(), name: name, csr: csr, key: key, keyName: keyName,
		until: time.Now().Add(requestLife), before: r.held()}, nil
}

// body returns the JSON of the request.
func (q *request) body() []byte {
	b, _ := json.Marshal(struct { // the struct always encodes
		ID      string `json:"id"`
		CSR     []byte `json:"csr"`
		Replace string `json:"replace,omitempty"`
	}{q.name, q.csr, q.replace})
	return b
}

// fromHub gets a certificate over the session. A request whose answer is outstanding is repeated
// with its id.
func (s *session) fromHub(ctx context.Context) error {
	r := s.t.r
	if err := s.subscribe(ctx); err != nil {
		return err
	}
	if q := r.pending; q == nil || q.name != s.deviceID || time.Now().After(q.until) {
		var err error
		if r.pending, err = r.newRequest(ctx, s.deviceID); err != nil {
			return err
		}
	}
	timer := time.NewTimer(r.opt.AnswerTimeout)
	defer timer.Stop()
	s.post()
	for waits, again := 0, 0; ; {
		select {
		case <-ctx.Done():
			return errEnded
		case <-timer.C:
			return failed(transport.Timeout, "the hub did not answer within "+r.opt.AnswerTimeout.String())
		case p := <-s.replies:
			if p.id == issueID && p.err != nil {
				return p.err
			}
		case a := <-s.answers:
			switch verdict, err := s.take(ctx, a); {
			case verdict == final:
				return err
			case verdict == accepted && waits < maxAccepted:
				waits++
				timer.Reset(r.opt.AnswerTimeout)
			case verdict == corrected && again < maxAgain:
				again++
				timer.Reset(r.opt.AnswerTimeout)
				s.post()
			case verdict == corrected:
				return err
			}
		}
	}
}

// subscribe subscribes to answers, once for each session.
func (s *session) subscribe(ctx context.Context) error {
	if s.subscribed {
		return nil
	}
	r := s.t.r
	s.do(&transport.Request{ID: subscribeID, Op: transport.OpSubscribe, Want: transport.FeatureCertificates})
	timer := time.NewTimer(r.opt.AnswerTimeout)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return errEnded
		case <-timer.C:
			return failed(transport.Timeout, "the hub did not answer within "+r.opt.AnswerTimeout.String())
		case p := <-s.replies:
			switch {
			case p.id != subscribeID:
				continue
			case p.err != nil && r.opt.Registrar != nil: // the hub may not know the topic
				return &transport.Error{Kind: transport.Unsupported, Op: transport.OpIssue, Err: p.err}
			}
			s.subscribed = p.err == nil
			return p.err
		}
	}
}

func (s *session) post() {
	q := s.t.r.pending
	s.do(&transport.Request{ID: issueID, Op: transport.OpIssue, Ref: []byte(q.id), Body: q.body()})
}

// verdict is what an answer means for the request.
type verdict uint8

const (
	ignored   verdict = iota // it answers another request
	accepted                 // the certificate follows
	corrected                // the request was corrected, and may be sent again
	final                    // there is a new certificate, or an error
)

// take handles an answer, and acknowledges it.
func (s *session) take(ctx context.Context, a answer) (verdict, error) {
	v, err := s.read(ctx, a)
	if len(a.ref) > 0 {
		s.do(&transport.Request{Op: transport.OpSettle, Ref: a.ref, Outcome: transport.OutcomeAccept})
	}
	return v, err
}

func (s *session) read(ctx context.Context, a answer) (verdict, error) {
	r := s.t.r
	q := r.pending
	if q == nil || a.id != q.id {
		return ignored, nil
	}
	status, _ := jsonscan.Int(a.status)
	switch {
	case status == 202:
		return accepted, nil
	case status/100 == 2:
		r.pending = nil
		if q.superseded(r.held()) {
			return final, nil
		}
		return final, s.issued(ctx, q, a.body)
	}
	e := refusal(int(status), a.body)
	row := meaning(int(status), codeOf(e))
	switch {
	case row.fix == replaceOther && q.replace == "":
		q.replace = "*"
		return corrected, e
	case row.fix == replaceNone && q.replace != "":
		q.replace = ""
		return corrected, e
	case row.fix == newRequest:
		r.pending = nil
	}
	return final, e
}

// issued checks the chain in an answer and makes it the one in use.
func (s *session) issued(ctx context.Context, q *request, body []byte) error {
	r := s.t.r
	var given struct{ Certificates []string }
	if len(body) == 0 || !jsonscan.IsObject(body) || json.Unmarshal(body, &given) != nil {
		return violation("the answer has no certificates")
	}
	chain := make([][]byte, len(given.Certificates))
	for i, c := range given.Certificates {
		var err error
		if chain[i], err = base64.StdEncoding.DecodeString(c); err != nil {
			return violation("a certificate is not in base64")
		}
	}
	cert, err := Check(chain, q.key, q.name, r.now())
	if err != nil {
		return err
	}
	return r.adopt(ctx, hold(cert, q.keyName))
}

func failed(kind transport.Kind, text string) *transport.Error {
	return &transport.Error{Kind: kind, Op: transport.OpIssue, Err: errors.New(text)}
}

// violation returns the error for an answer that is not one. Another one may be.
func violation(text string) *transport.Error {
	return &transport.Error{Kind: transport.Protocol, Op: transport.OpIssue,
		Err: &explained{"hub: " + text, transport.ErrViolation}}
}

// refusal returns the error for an answer that refuses a request.
func refusal(status int, body []byte) *transport.Error {
	e := &transport.StatusError{Service: "hub", Status: status}
	if !jsonscan.IsObject(body) {
		body = []byte("{}")
	}
	if n := number(body, "errorCode"); n/1000 == int64(status) {
		e.Code = int(n)
	}
	e.Message, e.TrackingID = text(body, "message"), text(body, "trackingId")
	if info, ok := jsonscan.Member(body, "info"); ok && jsonscan.IsObject(info) {
		e.Name = text(info, "credentialError")
	}
	row := meaning(status, e.Code)
	e.Meaning, e.Hint = row.meaning, row.hint
	return &transport.Error{Kind: row.kind, Op: transport.OpIssue, Err: e,
		RetryAfter: time.Duration(min(number(body, "retryAfter"), int64(times.MaxRetryAfter/time.Second))) * time.Second}
}

func codeOf(e *transport.Error) int { return e.Err.(*transport.StatusError).Code }

// number returns the value of a member, a number or one in quotation marks; 0 for anything else.
func number(object []byte, name string) int64 {
	raw, _ := jsonscan.Member(object, name)
	if unquoted, err := strconv.Unquote(string(raw)); err == nil {
		raw = []byte(unquoted)
	}
	n, ok := jsonscan.Int(raw)
	if !ok || n < 0 {
		return 0
	}
	return n
}

// text returns the text of a member, made safe for an error.
func text(object []byte, name string) string {
	raw, _ := jsonscan.Member(object, name)
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return scrub.Peer(s)
}
