package dpsupdate

import (
	"encoding/base64"
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// Limits of what the service takes. Those of versions and names are of an older specification: the
// newest one is silent about them.
const (
	maxProperties = 5
	maxText       = 64   // of AgentVersion
	maxCodes      = 1024 // characters of all extended codes
)

func invalid(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpCall, Err: errors.New(text)}
}

// checkQuery returns an error of Kind Invalid for a query that the service would refuse.
func checkQuery(q *agent.Query) error {
	if q.Profile < 1 {
		return invalid("the agent's profile is " + strconv.Itoa(q.Profile) + "; give 1 at least")
	}
	if n := len(q.Properties); n < 1 || n > maxProperties {
		return invalid(strconv.Itoa(n) + " properties; the service takes 1 to 5")
	}
	for i, p := range q.Properties {
		if p.Name == "" {
			return invalid("a property has no name")
		}
		for _, before := range q.Properties[:i] {
			if texts.EqualFold(p.Name, before.Name) { // the service compares names in any letter case
				return invalid("the property " + texts.Quote(p.Name) + " is there twice")
			}
		}
	}
	return checkID(q.Installed)
}

// checkReport returns an error of Kind Invalid for a report that the service would refuse.
func checkReport(r *agent.Report) error {
	if n := len(r.WorkflowID); n < 1 || n > agent.MaxWorkflowID {
		return invalid("the workflow id has " + strconv.Itoa(n) + " bytes; the service takes 1 to 128")
	}
	return checkID(r.Installed)
}

func checkID(id agent.UpdateID) error {
	if id == (agent.UpdateID{}) || id.Valid() {
		return nil
	}
	return invalid("the installed update " + texts.Quote(id.String()) + " is not valid: provider and name have 1 to 64 " +
		"ASCII letters, digits, dots and hyphens, and the version has 2 to 4 numbers")
}

// appendCheck appends the body of a check.
func (s *Service) appendCheck(b []byte, q *agent.Query) []byte {
	b = jsonscan.AppendString(append(b, `{"agentInfo":{"agentSdkVersion":`...), s.opt.AgentVersion)
	b = strconv.AppendInt(append(b, `,"agentProfile":`...), int64(q.Profile), 10)
	b = append(b, `,"compatibilityProperties":{`...)
	for i, p := range q.Properties {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonscan.AppendString(b, p.Name), ':')
		b = jsonscan.AppendString(b, p.Value)
	}
	b = appendInstalled(append(b, "}}"...), q.Installed)
	b = appendMember(b, `,"agentInfoEtag":`, q.Memo.AgentInfoETag)
	b = appendMember(b, `,"serviceConfigEtag":`, q.Memo.ConfigETag)
	return append(s.appendTPM(b), '}')
}

// appendReport appends the body of a report.
func (s *Service) appendReport(b []byte, r *agent.Report) []byte {
	b = appendMember(b, `{"workflowId":`, r.WorkflowID)
	b = append(appendInstalled(b, r.Installed), `,"installResult":{`...)
	b = appendResult(b, &r.Result)
	if r.Final() && len(r.Steps) > 0 {
		b = append(b, `,"stepResults":`...)
		for i := range r.Steps {
			if i == 0 {
				b = append(b, '{')
			} else {
				b = append(b, ',')
			}
			b = strconv.AppendInt(append(b, `"step_`...), int64(i), 10)
			b = append(appendResult(append(b, `":{`...), &r.Steps[i]), '}')
		}
		b = append(b, '}')
	}
	return append(s.appendTPM(append(b, '}')), '}')
}

// appendResult appends the members of a result.
func appendResult(b []byte, r *agent.Result) []byte {
	b = appendMember(b, `"outcome":`, r.Outcome.String())
	b = appendMember(b, `,"failureOrigin":`, r.Origin.String())
	b = strconv.AppendInt(append(b, `,"resultCode":`...), r.Code, 10)
	b = append(appendCodes(append(b, `,"extendedResultCodes":"`...), r.Extended), '"')
	return appendMember(b, `,"resultDetails":`, cut(r.Details))
}

// appendCodes appends extended codes: hexadecimal numbers without "0x" and padding.
func appendCodes(b []byte, codes []uint32) []byte {
	if len(codes) == 0 {
		return append(b, '0')
	}
	begin := len(b)
	for i, code := range codes {
		fits := len(b)
		if i > 0 {
			b = append(b, ',')
		}
		if b = strconv.AppendUint(b, uint64(code), 16); len(b)-begin > maxCodes {
			return b[:fits]
		}
	}
	return b
}

// cut shortens the details of a result to what the service takes, between two characters.
func cut(text string) string {
	n := min(len(text), agent.MaxDetails)
	for n < len(text) && n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// appendInstalled appends the installed update. Without one the member is missing, as null would be
// refused.
func appendInstalled(b []byte, id agent.UpdateID) []byte {
	if id == (agent.UpdateID{}) {
		return b
	}
	b = appendMember(b, `,"installedUpdateId":{"provider":`, id.Provider)
	b = appendMember(b, `,"name":`, id.Name)
	return append(appendMember(b, `,"version":`, id.Version), '}')
}

func (s *Service) appendTPM(b []byte) []byte {
	if len(s.opt.EndorsementKey) == 0 {
		return b
	}
	b = base64.StdEncoding.AppendEncode(append(b, `,"tpm":{"endorsementKey":"`...), s.opt.EndorsementKey)
	if len(s.opt.StorageRootKey) > 0 {
		b = base64.StdEncoding.AppendEncode(append(b, `","storageRootKey":"`...), s.opt.StorageRootKey)
	}
	return append(b, `"}`...)
}

// appendMember appends a member whose name is in before. Without a text it is missing.
func appendMember(b []byte, before, text string) []byte {
	if text == "" {
		return b
	}
	return jsonscan.AppendString(append(b, before...), text)
}
