package hub

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

const (
	defaultCertificateLife = 30 * 24 * time.Hour
	// activeLife is how long an accepted request waits for its certificate.
	activeLife = 12 * time.Hour
	// maxCSR is the longest signing request, in base64.
	maxCSR = 8192
	// maxIssued is how many issued certificates of a device the hub accepts, the newest.
	maxIssued = 4
	// maxAnswers is how many answers wait for a device, the newest: one that asks and does not listen
	// must not fill the memory.
	maxAnswers = 16
	// firstAnswerID is the first packet id of answers. Those of C2D messages count from 1.
	firstAnswerID = 0xFF00
)

// Error codes of requests for certificates.
const (
	codeRequestMalformed     = 400001
	codePayloadMalformed     = 400004
	codeNotJSON              = 400006
	codeSigningRequest       = 400040
	codeTier                 = 403010
	codeRequestActive        = 409005
	codeNothingToReplace     = 412001
	codeCertificateThrottled = 429002
)

// An issuer has the requests for certificates.
type issuer struct {
	mu  sync.Mutex // guards the fields below; held over writes of answers, which never block
	log keep.History[hubdata.CertificateRequest]
	of  map[identity.Identity]*issuing
}

// issuing is the latest accepted request of a device, and the answers that it has not acknowledged.
type issuing struct {
	request     string // empty: none
	expires     time.Time
	correlation string
	chain       []byte // the body with the certificates; nil: not issued yet
	answers     []*CertificateAnswer
	packetID    uint16
}

// CertificateAnswer is an answer to a request for a certificate.
type CertificateAnswer struct {
	Status    int
	RequestID string
	Body      []byte
	PacketID  uint16 // from firstAnswerID on
	Sent      *Conn  // the latest connection that it was sent over; nil: none
}

// A certificateFront sends the answers that its clients have not got yet.
type certificateFront interface{ TellCertificates(id identity.Identity) }

// CertificateRequests returns the requests of devices for certificates, in order of arrival.
func (h *Hub) CertificateRequests() []hubdata.CertificateRequest {
	h.issuer.mu.Lock()
	defer h.issuer.mu.Unlock()
	return slices.Clone(h.issuer.log.View())
}

func (i *issuer) clear() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.log.Clear()
	clear(i.of)
}

func (h *Hub) forgetCertificates(gone []identity.Identity) {
	h.issuer.mu.Lock()
	defer h.issuer.mu.Unlock()
	for _, id := range gone {
		delete(h.issuer.of, id)
	}
}

// SendAnswers passes the waiting answers of an identity to send, in order. send returns whether it
// sent the answer, and whether that needs no acknowledgement. It must not block.
func (h *Hub) SendAnswers(id identity.Identity, send func(a *CertificateAnswer) (sent, settled bool)) {
	h.issuer.mu.Lock()
	defer h.issuer.mu.Unlock()
	w := h.issuer.of[id]
	if w == nil {
		return
	}
	w.answers = slices.DeleteFunc(w.answers, func(a *CertificateAnswer) bool {
		_, settled := send(a)
		return settled
	})
}

// AcknowledgeAnswer removes the answer with this packet id, and reports whether there was one.
func (h *Hub) AcknowledgeAnswer(id identity.Identity, packetID uint16) bool {
	h.issuer.mu.Lock()
	defer h.issuer.mu.Unlock()
	w := h.issuer.of[id]
	if w == nil {
		return false
	}
	waiting := len(w.answers)
	w.answers = slices.DeleteFunc(w.answers, func(a *CertificateAnswer) bool { return a.PacketID == packetID })
	return len(w.answers) < waiting
}

// A certificateCase is a request for a certificate while it is served.
type certificateCase struct {
	h    *Hub
	c    *Conn
	id   identity.Identity
	rid  string
	body certificateBody

	twice, misname, silent, forget bool
	garbled                        []byte // instead of the chain; nil: the chain
	wrong                          *fault.Fault
	delay                          time.Duration
}

type certificateBody struct {
	ID      string  `json:"id"`
	CSR     string  `json:"csr"`
	Replace *string `json:"replace"`
}

// AskCertificate serves a request, subject to faults. ack acknowledges it; false when the
// connection ends with that.
func (h *Hub) AskCertificate(c *Conn, id identity.Identity, rid string, body []byte, ack func() bool) {
	k := &certificateCase{h: h, c: c, id: id, rid: rid}
	take := h.Taker(c, id)
	defer h.Changed.Wake()
	if take(fault.DropBeforeCertificate) != nil {
		c.CutFor(FaultError(fault.DropBeforeCertificate))
		return
	}
	// The cut comes first, so that the client gets neither the PUBACK nor the answers.
	if take(fault.DropAfterCertificate) != nil {
		c.CutFor(FaultError(fault.DropAfterCertificate))
	} else if !ack() {
		return
	}
	refusal := take(fault.RefuseCertificate)
	k.silent = take(fault.SwallowCertificate) != nil
	k.twice = take(fault.DuplicateCertificate) != nil
	k.misname = take(fault.MisnameCertificate) != nil
	k.forget = take(fault.ForgetCertificate) != nil
	k.wrong = take(fault.WrongCertificate)
	if f := take(fault.GarbleCertificate); f != nil {
		k.garbled = GarbageOf(f, []byte(`{"correlationId`))
	}
	k.delay = h.Certificates.Delay
	if f := take(fault.SlowCertificate); f != nil {
		k.delay = f.Delay
	}
	var err *hubdata.ServiceError
	var retryAfter time.Duration
	if refusal != nil {
		err, retryAfter = h.declared(refusal), refusal.RetryAfter
	} else {
		err = k.decide(body)
	}
	if err != nil {
		k.record(err.Status(), err.Code)
		k.answer(err.Status(), k.refusal(err, retryAfter))
	}
	k.tell()
}

// decide accepts or refuses a request. An accepted one is answered here.
func (k *certificateCase) decide(body []byte) *hubdata.ServiceError {
	h := k.h
	if in := h.Faults.InForce(fault.Throttle, k.id); in != nil {
		h.HappenedTo(in, k.c, k.id)
		return h.ServiceError(codeCertificateThrottled, "%s", FaultError(fault.Throttle))
	}
	csr, err := k.read(body)
	if err != nil {
		return err
	}
	h.issuer.mu.Lock()
	defer h.issuer.mu.Unlock()
	w := h.issuer.of[k.id]
	if w == nil {
		w = &issuing{}
		h.issuer.of[k.id] = w
	}
	now := h.Now()
	active := w.request != "" && w.chain == nil && now.Before(w.expires)
	replace := ""
	if k.body.Replace != nil {
		replace = *k.body.Replace
	}
	switch {
	case w.request == k.rid && w.chain != nil:
		k.recordLocked(200, 0)
		k.answerLocked(w, 200, w.chain)
		return nil
	case w.request == k.rid && active:
		k.recordLocked(202, 0)
		k.answerLocked(w, 202, k.accepted(w))
		return nil
	case replace != "" && (!active || replace != "*" && replace != w.request):
		return h.ServiceError(codeNothingToReplace, "no request %q is active", replace)
	case active && replace == "":
		return h.ServiceError(codeRequestActive, "request %q is active", w.request)
	}
	*w = issuing{request: k.rid, expires: now.Add(activeLife), packetID: w.packetID,
		correlation: fmt.Sprintf("%08x", h.tracked.Add(1))}
	k.recordLocked(202, 0)
	k.answerLocked(w, 202, k.accepted(w))
	if k.delay <= 0 {
		k.issueLocked(w, csr)
		return nil
	}
	h.Later(k.delay, nil, func() {
		h.issuer.mu.Lock()
		if h.issuer.of[k.id] == w && w.request == k.rid && w.chain == nil {
			k.issueLocked(w, csr)
		}
		h.issuer.mu.Unlock()
		k.tell()
		h.Changed.Wake()
	})
	return nil
}

// read checks the request, as strictly as the service.
func (k *certificateCase) read(body []byte) (*x509.CertificateRequest, *hubdata.ServiceError) {
	h := k.h
	switch {
	case h.Certificates.Life < 0 || k.id.Module != "":
		return nil, h.ServiceError(codeTier, "the hub issues no certificates")
	case !validRequestID(k.rid):
		return nil, h.ServiceError(codeRequestMalformed, "request id %q", k.rid)
	case !document.Valid(body):
		return nil, h.ServiceError(codeNotJSON, "the request is not JSON in UTF-8")
	}
	if err := strictJSON(body, &k.body); err != nil {
		return nil, h.ServiceError(codePayloadMalformed, "%v", err)
	}
	if k.body.ID != k.id.Device {
		return nil, h.ServiceError(codePayloadMalformed, "the request is for %q", k.body.ID)
	}
	if n := len(k.body.CSR); n == 0 || n > maxCSR {
		return nil, h.ServiceError(codeSigningRequest, "csr has %d characters, 1 to %d are allowed", n, maxCSR)
	}
	der, err := base64.StdEncoding.DecodeString(k.body.CSR)
	var csr *x509.CertificateRequest
	if err == nil {
		csr, err = x509.ParseCertificateRequest(der)
	}
	if err == nil {
		err = csr.CheckSignature()
	}
	switch {
	case err != nil:
		return nil, h.ServiceError(codeSigningRequest, "csr: %v", err)
	case csr.Subject.CommonName != k.id.Device:
		return nil, h.ServiceError(codeSigningRequest, "csr is for %q", csr.Subject.CommonName)
	}
	return csr, nil
}

// validRequestID reports whether an id has 4 to 36 letters, digits and "-", and no "-" at its ends.
func validRequestID(s string) bool {
	if len(s) < 4 || len(s) > 36 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}

// issueLocked signs the certificate, lets the device use it, and answers.
func (k *certificateCase) issueLocked(w *issuing, csr *x509.CertificateRequest) {
	leaf, ca := k.h.Authority.IssueDevice(csr, k.h.Certificates.Life)
	if !k.forget {
		k.h.acceptCertificate(k.id, leaf)
	}
	if k.wrong != nil {
		leaf = WrongLeaf(k.wrong, k.id.Device)
	}
	w.chain = keep.MustJSON(struct {
		Correlation  string   `json:"correlationId"`
		Certificates [][]byte `json:"certificates"`
	}{w.correlation, [][]byte{leaf, ca}})
	if k.garbled != nil {
		w.chain = k.garbled
	}
	k.answerLocked(w, 200, w.chain)
}

// acceptCertificate lets a device authenticate with a certificate, besides the earlier ones.
func (h *Hub) acceptCertificate(id identity.Identity, leaf []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.registry[id]; r != nil {
		r.accept(digestOf(leaf))
		h.touchDevice(id)
	}
}

// accept adds the digests of issued certificates, and drops the oldest ones.
func (r *Registration) accept(digests ...string) {
	r.Issued = append(slices.Clone(r.Issued), digests...)
	r.Issued = r.Issued[max(0, len(r.Issued)-maxIssued):]
}

func (k *certificateCase) accepted(w *issuing) []byte {
	return keep.MustJSON(struct {
		Correlation string `json:"correlationId"`
		Expires     string `json:"operationExpires"`
	}{w.correlation, document.TimeText(w.expires)})
}

func (k *certificateCase) refusal(e *hubdata.ServiceError, retryAfter time.Duration) []byte {
	type info struct {
		Request string `json:"requestId"`
		Error   string `json:"credentialError,omitempty"`
		Message string `json:"credentialMessage,omitempty"`
	}
	about := info{Request: k.rid}
	if e.Code == codeSigningRequest {
		about.Error, about.Message = "CertificateSigningRequestInvalid", e.Message
	}
	return keep.MustJSON(struct {
		Code       int    `json:"errorCode"`
		Message    string `json:"message"`
		Tracking   string `json:"trackingId"`
		Timestamp  string `json:"timestampUtc"`
		Info       info   `json:"info"`
		RetryAfter int    `json:"retryAfter,omitempty"`
	}{e.Code, e.Message, e.TrackingID, document.TimeText(k.h.Now()), about, Seconds(retryAfter)})
}

func (k *certificateCase) record(status, code int) {
	k.h.issuer.mu.Lock()
	defer k.h.issuer.mu.Unlock()
	k.recordLocked(status, code)
}

func (k *certificateCase) recordLocked(status, code int) {
	r := hubdata.CertificateRequest{DeviceID: k.id.Device, RequestID: k.rid, Status: status, Code: code,
		Received: k.h.Now(), Connection: k.c.Number}
	if k.body.Replace != nil {
		r.Replace = *k.body.Replace
	}
	k.h.issuer.log.Add(r)
}

func (k *certificateCase) answer(status int, body []byte) {
	k.h.issuer.mu.Lock()
	defer k.h.issuer.mu.Unlock()
	w := k.h.issuer.of[k.id]
	if w == nil {
		w = &issuing{}
		k.h.issuer.of[k.id] = w
	}
	k.answerLocked(w, status, body)
}

func (k *certificateCase) answerLocked(w *issuing, status int, body []byte) {
	if k.silent {
		return
	}
	rid, times := k.rid, 1
	if k.misname {
		rid += "-other"
	}
	if k.twice {
		times = 2
	}
	for range times {
		if w.packetID++; w.packetID < firstAnswerID {
			w.packetID = firstAnswerID
		}
		w.answers = append(w.answers, &CertificateAnswer{Status: status, RequestID: rid, Body: body, PacketID: w.packetID})
		w.answers = w.answers[max(0, len(w.answers)-maxAnswers):]
	}
}

// tell sends the waiting answers to the device, if it listens.
func (k *certificateCase) tell() {
	k.h.Records.Saved() // a certificate that the device gets opens connections also after a restart
	if f, ok := k.h.Fronts[hubdata.MQTT].(certificateFront); ok {
		f.TellCertificates(k.id)
	}
}

// strictJSON decodes an object without unknown members.
func strictJSON(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// WrongLeaf returns the certificate that a fault sends: Bytes, or one with this name for a key that
// the device does not have.
func WrongLeaf(f *fault.Fault, name string) []byte {
	if len(f.Bytes) > 0 {
		return f.Bytes
	}
	key := identity.NewKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-identity.CertBackdate), NotAfter: time.Now().Add(identity.CertLife),
	}
	template.Subject.CommonName = name
	return identity.SignCert(template, template, key, key).Raw
}
