package mqttfront

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// Topics of requests for certificates.
const (
	credentialsTopic   = "$iothub/credentials/"
	issueTopic         = credentialsTopic + "POST/issueCertificate/?$rid="
	issuedTopic        = credentialsTopic + "res/"
	credentialsFilter  = issuedTopic + "#"
	maxCertificateBody = 16 << 10

	// firstIssuing is the first version of the API with requests for certificates.
	firstIssuing = "2025-08-01"
)

// issues reports whether the client's version of the API has requests for certificates.
func (c *client) issues() bool { return c.user.param("api-version") >= firstIssuing }

// requestCertificate handles a request for a certificate. An error closes the connection.
func (f service) requestCertificate(c *client, pk *mqtt.PublishPacket, ack func() bool) error {
	rid, ok := strings.CutPrefix(pk.Topic, issueTopic)
	switch {
	case !ok || rid == "":
		return fmt.Errorf("no such topic: %q", pk.Topic)
	case !c.issues():
		return fmt.Errorf("requests for certificates need the api-version %s", firstIssuing)
	case len(pk.Payload) > maxCertificateBody:
		return fmt.Errorf("request of %d bytes, at most %d are allowed", len(pk.Payload), maxCertificateBody)
	}
	f.hub.AskCertificate(c.Conn, c.ID, rid, pk.Payload, ack)
	return nil
}

// TellCertificates sends the waiting answers of a device, if it is connected and has subscribed.
// Those that it did not acknowledge on an earlier connection are sent again.
func (f *Front) TellCertificates(id identity.Identity) {
	f.mu.Lock()
	c := f.current[id]
	var sub subscription
	subscribed := false
	if c != nil {
		sub, subscribed = c.heard[credentialsFilter]
	}
	f.mu.Unlock()
	if !subscribed {
		return
	}
	f.hub.SendAnswers(id, func(a *hub.CertificateAnswer) (sent, settled bool) {
		if mode := c.Mode.Load(); a.Sent == c.Conn || mode != hub.Open && mode != hub.Silent {
			return false, false
		}
		k := &mqtt.PublishPacket{
			QoS: sub.QoS, Topic: issuedTopic + strconv.Itoa(a.Status) + "/?$rid=" + a.RequestID, Payload: a.Body,
		}
		if k.QoS > 0 {
			k.ID, k.Dup = a.PacketID, a.Sent != nil
		}
		a.Sent = c.Conn
		_, err := c.Write(mqtt.EncodePublish(mqtt.V311, k))
		return err == nil, err == nil && k.QoS == 0
	})
}
