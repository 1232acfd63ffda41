from django.apps import AppConfig


class QueueJobsConfig(AppConfig):
    name = "queue_jobs.django"
    label = "queue_jobs"
    verbose_name = "queue_jobs"
