package wire

import (
	"strings"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
)

// A device requests certificates on topics that name no device, as those of the twin. The hub has
// them from APIVersionCertificates on. Requests and answers use QoS 1.
const (
	certificateRequest = "$iothub/credentials/POST/issueCertificate/?$rid="
	certificateAnswer  = "$iothub/credentials/res/"
)

// APIVersionCertificates is the first version of the service's API with requests for certificates.
const APIVersionCertificates = "2025-08-01-preview"

// AppendCertificateRequest appends the topic of an OpIssue.
func AppendCertificateRequest(dst []byte, r *transport.Request) []byte {
	return append(append(dst, certificateRequest...), r.Ref...)
}

// AllFilters is Filters, and the filter for transport.Certificates when that is wanted alone.
func (t *Topics) AllFilters(dst []Filter, want transport.Features) []Filter {
	if want == transport.Certificates {
		return append(dst, Filter{Topic: certificateAnswer + "#", QoS: 1})
	}
	return t.Filters(dst, want)
}

// TakeCertificate delivers an answer to a request for a certificate, with the packet id and DUP of
// its PUBLISH. It returns false for other topics. Malformed topics are ignored.
func (in *Inbound) TakeCertificate(sink transport.Sink, topic string, body []byte, id uint16, dup bool) bool {
	rest, ok := strings.CutPrefix(topic, certificateAnswer)
	if !ok {
		return false
	}
	code, query, _ := strings.Cut(rest, "/")
	request := param(query, paramRequest)
	if request == "" && !strings.HasPrefix(query, "?") {
		request = query // the form of the service's documents: 200/ID
	}
	if n, ok := jsonscan.Int(code); !ok || n < 100 || n > 999 || request == "" {
		return true
	}
	in.Decode("", body, id, dup)
	in.message.CorrelationID = request
	in.delivery.Kind, in.delivery.Name = transport.Certificates, []byte(code)
	sink.Deliver(&in.delivery)
	return true
}
