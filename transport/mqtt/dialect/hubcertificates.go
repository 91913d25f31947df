package dialect

import (
	"strings"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
)

// A device requests certificates on topics that name no device, as those of the twin. The hub has
// them from apiVersionCertificates on. Requests and answers use QoS 1.
const (
	certificateRequest = "$iothub/credentials/POST/issueCertificate/?$rid="
	certificateAnswer  = "$iothub/credentials/res/"
)

// apiVersionCertificates is the first version of the service's API with requests for certificates.
const apiVersionCertificates = "2025-08-01-preview"

// certificateSession adds requests for certificates.
type certificateSession struct{ twinSession }

// Filters has the filter for transport.FeatureCertificates when that is wanted alone.
func (s *certificateSession) Filters(want transport.Features) []Filter {
	if want == transport.FeatureCertificates {
		return []Filter{{Topic: certificateAnswer + "#", QoS: 1}}
	}
	return s.twinSession.Filters(want)
}

func (s *certificateSession) AppendRequest(dst []byte, r *transport.Request) ([]byte, byte, bool) {
	if r.Op == transport.OpIssue {
		return append(append(dst, certificateRequest...), r.Ref...), 1, true
	}
	return s.twinSession.AppendRequest(dst, r)
}

// Take ignores malformed topics of answers.
func (s *certificateSession) Take(sink transport.Sink, topic []byte, d *transport.Delivery) {
	if len(topic) < len(certificateAnswer) || string(topic[:len(certificateAnswer)]) != certificateAnswer {
		s.twinSession.Take(sink, topic, d)
		return
	}
	code, query, _ := strings.Cut(string(topic[len(certificateAnswer):]), "/")
	request := param(query, paramRequest)
	if request == "" && !strings.HasPrefix(query, "?") {
		request = query // the form of the service's documents: 200/ID
	}
	if n, ok := jsonscan.Int(code); !ok || n < 100 || n > 999 || request == "" {
		return
	}
	d.Msg.CorrelationID = request
	d.Kind, d.Name = transport.FeatureCertificates, []byte(code)
	sink.Deliver(d)
}
