// Program cainjector runs the cainjector of cert-manager for webhooks. Its only argument is a kubeconfig.
package main

import (
	"os"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	ctrl.SetLogger(klog.NewKlogr())
	ctx := ctrl.SetupSignalHandler()
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	check(err)
	config.UserAgent = "cert-manager-cainjector"
	check(certmanager.AddToScheme(scheme.Scheme))
	options := ctrl.Options{Scheme: scheme.Scheme, Metrics: metrics.Options{BindAddress: "0"}}
	manager, err := ctrl.NewManager(config, options)
	check(err)
	check(cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName:   true,
			cainjector.ValidatingWebhookConfigurationName: true,
		},
	}))
	check(manager.Start(ctx))
}

func check(err error) {
	if err != nil {
		klog.ErrorS(err, "cainjector ends")
		os.Exit(1)
	}
}
