"""An application for the tests of the Django backend (django_backend.py)."""

import importlib.util
import os

SECRET_KEY = "none"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"], "USER": os.environ["PGUSER"],
                         "HOST": os.environ["PGHOST"], "PORT": os.environ["PGPORT"]}}
INSTALLED_APPS = ["queue_jobs.django", "shop"]
if importlib.util.find_spec("django.tasks") is None:
    INSTALLED_APPS.insert(0, "django_tasks")
TASKS = {"default": {"BACKEND": "queue_jobs.django.backend.QueueJobsBackend", "QUEUES": ["default", "mails"]}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
