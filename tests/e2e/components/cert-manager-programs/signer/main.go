// Program signer runs the controllers of cert-manager that sign certificates with an authority in a Secret. Its only
// argument is a kubeconfig.
package main

import (
	"os"

	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	ctrl.SetLogger(klog.NewKlogr())
	ctx := klog.NewContext(ctrl.SetupSignalHandler(), klog.NewKlogr())
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         os.Args[1],
		KubernetesAPIQPS:   50,
		KubernetesAPIBurst: 100,
		Clock:              clock.RealClock{},
		Metrics:            metrics.New(klog.NewKlogr(), clock.RealClock{}),
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: "kube-system"},
	})
	check(err)
	ended := make(chan error)
	for name, make := range controller.Known() {
		made, err := make(factory)
		check(err)
		klog.InfoS("starts", "controller", name)
		go func() { ended <- made.Run(2, ctx) }()
	}
	context, err := factory.Build()
	check(err)
	context.SharedInformerFactory.Start(ctx.Done())
	context.KubeSharedInformerFactory.Start(ctx.Done())
	context.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	check(<-ended)
}

func check(err error) {
	if err != nil {
		klog.ErrorS(err, "signer ends")
		os.Exit(1)
	}
}
