package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/neterr"
)

// handshake connects and does TLS, without a check of the certificate and with old versions too, so
// that the rows can say what the server has.
func (p *Probe) handshake(ctx context.Context, s *site) (net.Conn, tls.ConnectionState, error) {
	conn, err := p.dial(ctx, s)
	if err != nil {
		return nil, tls.ConnectionState{}, err
	}
	config := &tls.Config{
		ServerName: s.host, MinVersion: tls.VersionTLS10, InsecureSkipVerify: true, NextProtos: p.Target.ALPN(),
	}
	if get := p.Target.Network.Certificate; get != nil {
		config.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return get(r.Context())
		}
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, tls.ConnectionState{}, err
	}
	return secure, secure.ConnectionState(), nil
}

// runTLS checks the handshake, the version and the certificate.
func runTLS(ctx context.Context, p *Probe, s subject) []Row {
	if s.site.plaintext {
		return warn("off", "passwords and messages cross the network readable; give a URL with mqtts, wss or amqps")
	}
	outer := ctx
	ctx, cancel := p.limit(ctx)
	defer cancel()
	conn, state, err := p.handshake(ctx, s.site)
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &header) && strings.HasPrefix(string(header.RecordHeader[:]), "HTTP"):
		return wrong(transport.Protocol, "HTTP instead of TLS", "a captive portal or a proxy answers in place of the "+
			"service: open a web page on this network and log in; or the port is one without TLS")
	case errors.As(err, &header):
		rows := wrong(transport.Protocol, "not TLS", "another protocol is at this port, or it is one without TLS; check the "+
			"address")
		return p.otherwise(outer, rows, s.site, p.wantedAt(s.site))
	case isALPN(err):
		return wrong(transport.Unsupported, "no common protocol", "the server wants another name in TLS (ALPN) than "+
			offered(p.Target.ALPN())+": give -alpn NAME, or the -dialect of the service")
	case err != nil:
		rows := bad(err)
		rows[0].Hint = p.unfinished(rows[0].Kind) + rows[0].Hint
		return p.otherwise(outer, rows, s.site, p.wantedAt(s.site))
	}
	if err := conn.Close(); err != nil && ctx.Err() != nil {
		return bad(err)
	}
	version := tls.VersionName(state.Version)
	if state.Version < tls.VersionTLS12 {
		return wrong(transport.Unsupported, version, "the device needs TLS 1.2: an old proxy on the way, or an old server")
	}
	if state.NegotiatedProtocol != "" {
		version += fmt.Sprintf(" for %.20q", state.NegotiatedProtocol)
	}
	rows := p.judge(s, state.PeerCertificates, version)
	advice := p.Target.Advice(s.site.host)
	if len(p.Target.ALPN()) > 0 && state.NegotiatedProtocol == "" {
		advice = "the server takes no notice of the protocol name " + offered(p.Target.ALPN()) + " (ALPN): a proxy on the " +
			"way opens the connection, or the port is for another protocol"
	}
	if advice != "" && rows[0].Mark == OK {
		return warn(rows[0].Figure, advice)
	}
	return rows
}

// unfinished says what the end of a handshake at a port that is open may mean.
func (p *Probe) unfinished(kind transport.Kind) string {
	const who = "a firewall that looks into connections, a port without TLS, or a service that is in trouble; "
	switch kind {
	case transport.Timeout:
		return "the port is open, and nobody answered the handshake within " + took(p.Options.Timeout) + ": " + who
	case transport.Network:
		return "the port is open, and the handshake was cut: " + who
	default:
		return ""
	}
}

// isALPN reports whether the server takes none of the offered names (RFC 7301, 3.2).
func isALPN(err error) bool {
	_, hint, ok := neterr.Explain(err)
	return ok && strings.Contains(hint, "no application protocol")
}

func offered(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strconv.Quote(names[0])
}

// judge checks the server's certificate.
func (p *Probe) judge(s subject, chain []*x509.Certificate, version string) []Row {
	leaf := chain[0]
	figure := fmt.Sprintf("%s, by %.60q, until %s", version, issuer(leaf), leaf.NotAfter.UTC().Format("2006-01-02"))
	at := p.now()
	if p.implausible() {
		at = leaf.NotBefore // row clock says that dates cannot be checked
	}
	options := p.verification(s.site, chain, at)
	verified, err := leaf.Verify(options)
	if err != nil {
		return untrusted(err, leaf, figure, options)
	}
	root := verified[0][len(verified[0])-1]
	if azure(s.site.host) && !microsofts(root) {
		return warn(figure, fmt.Sprintf("%.60q does not sign for Azure: a proxy on the way opens the connection, and this "+
			"machine trusts its authority", issuer(root)))
	}
	if p.implausible() {
		return warn(figure, "its dates were not checked, because the clock is not set")
	}
	if left := leaf.NotAfter.Sub(p.now()); left < certsSoon {
		return warn(figure, "it expires in "+took(left)+"; the operator of the service has to renew it")
	}
	server := s.site.host
	if s.site.name == provisioningSite {
		server = provisioningSite + " " + server // another service, though of the same name
	}
	if other, known := p.roots[server]; known && other != string(root.Raw) {
		return warn(figure, "another authority than at the port above: one of the two connections is opened on the way")
	}
	p.roots[server] = string(root.Raw)
	return fine(figure)
}

// verification returns the options that verify name and chain at a time.
func (p *Probe) verification(s *site, chain []*x509.Certificate, at time.Time) x509.VerifyOptions {
	o := x509.VerifyOptions{DNSName: s.host, CurrentTime: at, Intermediates: x509.NewCertPool()}
	if base := p.Target.Network.TLS; base != nil {
		o.Roots = base.RootCAs
	}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	return o
}

// identified reports whether the service's certificate verifies at some time: the server is the
// service, whatever the clock of the device. The certificates of the chain need not begin together.
func (p *Probe) identified(s *site, state tls.ConnectionState) bool {
	chain := state.PeerCertificates
	times := []time.Time{p.now(), chain[0].NotAfter}
	for _, c := range chain {
		times = append(times, c.NotBefore)
	}
	return state.Version >= tls.VersionTLS12 && slices.ContainsFunc(times, func(at time.Time) bool {
		_, err := chain[0].Verify(p.verification(s, chain, at))
		return err == nil
	})
}

// untrusted returns the row of a certificate that does not verify, by the cause.
func untrusted(err error, leaf *x509.Certificate, figure string, o x509.VerifyOptions) []Row {
	var name x509.HostnameError
	var unknown x509.UnknownAuthorityError
	hint := err.Error()
	switch names := namesOf(leaf); {
	case errors.As(err, &name) && names == "":
		hint = fmt.Sprintf("the certificate has no name but the common name %.200q, and clients do not read that: a captive "+
			"portal, or the operator of the service has to put %s into the certificate's subjectAltName",
			leaf.Subject.CommonName, o.DNSName)
	case errors.As(err, &name):
		hint = fmt.Sprintf("the certificate is for %.200q and not for %s: a captive portal, or the wrong address", names,
			o.DNSName)
	case o.CurrentTime.After(leaf.NotAfter):
		hint = "the certificate has expired: the operator of the service has to renew it; or the clock is ahead"
	case o.CurrentTime.Before(leaf.NotBefore):
		return wrong(transport.ClockUnset, figure, "the certificate is not valid yet: the clock is behind")
	case errors.As(err, &unknown):
		hint = fmt.Sprintf("%.60q is no authority that this machine trusts: a proxy on the way opens the connection, or the "+
			"service has its own authority; if it is yours, give its certificate with -ca", issuer(leaf))
	}
	return wrong(transport.Untrusted, figure, hint)
}

// namesOf returns the first names and addresses that a certificate is for.
func namesOf(leaf *x509.Certificate) string {
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return strings.Join(names[:min(3, len(names))], ", ")
}

func issuer(c *x509.Certificate) string {
	if len(c.Issuer.Organization) > 0 {
		return c.Issuer.Organization[0]
	}
	return c.Issuer.CommonName
}

// azureNames are the domains of the service.
var azureNames = []string{
	".azure-devices.net", ".azure-devices-provisioning.net", ".azure-devices.us", ".azure-devices-provisioning.us",
	".azure-devices.cn", ".azure-devices-provisioning.cn",
}

func azure(host string) bool {
	for _, name := range azureNames {
		if strings.HasSuffix(strings.ToLower(host), name) {
			return true
		}
	}
	return false
}

// microsofts reports whether the service's certificates end in this authority.
func microsofts(root *x509.Certificate) bool {
	for _, name := range []string{"DigiCert", "Microsoft", "Baltimore"} {
		if strings.HasPrefix(issuer(root), name) {
			return true
		}
	}
	return false
}
