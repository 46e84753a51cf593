// Package dashboard has no code of its own. Its tests play a scene of contention,
// losses, refusals and a dead store in fake time, scrape what promholdfast and
// otelholdfast report of it into the storage of Prometheus, and evaluate every
// expression of docs/grafana with the engine of Prometheus.
package dashboard
