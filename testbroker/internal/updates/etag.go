package updates

func etagOf(a Agent) string { return encodePart(toJSON(a))[:8] }
