package kubernetes

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var (
	block = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	flag  = regexp.MustCompile(`^--[a-z-]+`)
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// decode returns the template of a manifest's pods. It refuses a field that
// Kubernetes' own types do not have, and one that is there twice.
func decode(manifest []byte) (kind string, pods *core.PodTemplateSpec, selector *meta.LabelSelector, err error) {
	var m meta.TypeMeta
	if err := yaml.Unmarshal(manifest, &m); err != nil {
		return "", nil, nil, err
	}
	switch kind = m.APIVersion + " " + m.Kind; kind {
	case "apps/v1 Deployment":
		var d apps.Deployment
		return kind, &d.Spec.Template, d.Spec.Selector, yaml.UnmarshalStrict(manifest, &d)
	case "batch/v1 CronJob":
		var c batch.CronJob
		err = yaml.UnmarshalStrict(manifest, &c)
		return kind, &c.Spec.JobTemplate.Spec.Template, nil, err
	}
	return kind, nil, nil, os.ErrInvalid
}

// TestManifestsAreOfTheAPI decodes each manifest of the page by Kubernetes' own types,
// and checks what the server would refuse or nobody would see: labels that do not
// match, volumes without a source, and flags that the command does not have.
func TestManifestsAreOfTheAPI(t *testing.T) {
	reference := read(t, "../../docs/cli.md")
	var kinds []string
	for _, b := range block.FindAllStringSubmatch(read(t, "../../docs/kubernetes.md"), -1) {
		kind, pods, selector, err := decode([]byte(b[1]))
		if err != nil {
			t.Errorf("%s: %v\n%s", kind, err, b[1])
			continue
		}
		kinds = append(kinds, kind)
		if selector != nil {
			for label, value := range selector.MatchLabels {
				if pods.Labels[label] != value {
					t.Errorf("%s: pods have %v, selected are %v", kind, pods.Labels, selector.MatchLabels)
				}
			}
		} else if pods.Spec.RestartPolicy != core.RestartPolicyNever && pods.Spec.RestartPolicy != core.RestartPolicyOnFailure {
			t.Errorf("%s: restartPolicy %q", kind, pods.Spec.RestartPolicy)
		}
		for _, c := range pods.Spec.Containers {
			for _, mount := range c.VolumeMounts {
				if !slices.ContainsFunc(pods.Spec.Volumes, func(v core.Volume) bool { return v.Name == mount.Name && v.Secret != nil }) {
					t.Errorf("%s: no volume %q", kind, mount.Name)
				}
			}
			line := slices.Concat(c.Command, c.Args)
			if i := slices.Index(line, "--"); line[0] != "holdfast" || i < 0 || i == len(line)-1 {
				t.Errorf("%s: %q is not a holdfast run NAME -- COMMAND", kind, line)
				continue
			} else {
				line = line[:i]
			}
			for _, word := range line {
				if name := flag.FindString(word); name != "" && !strings.Contains(reference, " "+name+" ") {
					t.Errorf("%s: the command has no flag %s", kind, name)
				}
			}
		}
	}
	if want := []string{"apps/v1 Deployment", "batch/v1 CronJob"}; !slices.Equal(kinds, want) {
		t.Errorf("the page has %q, want %q", kinds, want)
	}
}

// TestDecodeRefuses checks that the decoder sees a misspelt and a misplaced field.
func TestDecodeRefuses(t *testing.T) {
	page := read(t, "../../docs/kubernetes.md")
	for _, change := range [][2]string{
		{"terminationGracePeriodSeconds", "terminationGracePeriod"},
		{"concurrencyPolicy", "concurency"},
		{"replicas: 2", "replicas: two"},
	} {
		failed := false
		for _, b := range block.FindAllStringSubmatch(strings.ReplaceAll(page, change[0], change[1]), -1) {
			if _, _, _, err := decode([]byte(b[1])); err != nil {
				failed = true
			}
		}
		if !failed {
			t.Errorf("%s instead of %s was decoded", change[1], change[0])
		}
	}
}
