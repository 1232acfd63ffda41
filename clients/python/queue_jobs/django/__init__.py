"""Django's tasks on queue_jobs: TASKS = {"default": {"BACKEND": "queue_jobs.django.backend.QueueJobsBackend"}}, "queue_jobs.django" in INSTALLED_APPS."""
